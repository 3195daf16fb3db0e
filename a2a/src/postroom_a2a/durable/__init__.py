"""A2A over JetStream (`NATS+JS`): requests and answers that are stored before anybody is told that they were sent."""
