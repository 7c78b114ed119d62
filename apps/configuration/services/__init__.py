"""Changes of configuration, policies and queues. One module per noun."""
