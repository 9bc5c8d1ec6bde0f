"""What the sockets are made of: who comes and from where, queries, news of the channel layer, flow control."""
