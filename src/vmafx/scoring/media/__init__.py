"""Clips by path or URI, opened once: what comes out is a descriptor, and nobody opens by name again.

    opened.py    the way in: `async with open_media(uri, part, policy) as opened`
    policy.py    what may be opened, and the variables that say so
    schemes.py   the table of URI schemes: how each is parsed, fetched and written, and what has to be installed
    uri.py       from text to a place; what of it may be shown
    local.py     files of this machine
    staging.py   where remote clips lie meanwhile: a file without a name, bounded and hashed
    web.py       http and https; guard.py which addresses they may lead to
    store.py     object stores, by way of fsspec; s3.py and gs.py how each is reached
    deliver.py   the other way: a report to a path or URI
    retry.py     when a broken transfer goes on, and when it is given up

No text that leaves here holds a credential: no user names of URLs, no queries, no headers, no foreign error's words.
"""
