"""Entity management in the words of the service: Atom entries and feeds over HTTP (SPEC 7).

What an entity may be is the broker's to say, and what exists is the catalog's; here both are
spelled in XML.
"""
