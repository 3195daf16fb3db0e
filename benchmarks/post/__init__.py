"""The post office: what a reader waits for, however much there is."""
