"""Faces for the official A2A SDK: transport, client factory, server, request handler, task store, card registry."""
