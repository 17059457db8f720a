"""One queue against a plain model: everything a client may do, in any order, with power cuts."""
