"""HTTP/1.1 on h11, as small as Postroom needs it: a client, a server, and the connection under both."""
