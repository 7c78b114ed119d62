"""What people do to configuration, policies and queues. One module per noun."""
