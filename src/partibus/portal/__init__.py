"""What a person looks at in a browser.

A page of static files, without a build step. It speaks to the HTTP door as any client does, with
tokens that it signs in the browser, so nothing here knows entities, keys or messages.
"""
