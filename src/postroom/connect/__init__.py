"""Sessions of coding agents in people's own terminals: hooks, handing over of mail, clients' configuration."""
