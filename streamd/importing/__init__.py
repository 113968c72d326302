"""Taking over the data of a running Redis: `streamd import`. A client of both servers, over the wire."""
