"""Clips by path or URI, opened once as a file descriptor; reports and files delivered to a path or URI.

Nothing opens a clip by name again after it was checked. Texts and errors that leave this package contain no
credentials: no user names of URLs, no queries, no headers, no messages of foreign errors.

    access.py         opens and hashes a clip, delivers a report, uploads a file; the functions that others call
    policy.py         what may be opened, with the variables that configure it
    uri.py            the table of URI schemes, URI parsing, display names without credentials
    local.py          files of this machine
    staging.py        temporary files for downloads: limited in size, hashed, without a name
    retry.py          retries of interrupted transfers
    web.py            downloads and uploads by http and https
    address_guard.py  which IP addresses a URL may lead to
    oci.py            downloads of models from OCI registries
    registries.py     references, transport and credentials of OCI registries
    object_store.py   downloads and uploads of objects, with fsspec
    s3.py             access to Amazon S3 and compatible stores
    gs.py             access to Google Cloud Storage
"""
