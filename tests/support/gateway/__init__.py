"""A real gateway for tests: Envoy Gateway and Envoy as processes, and backends that stand in for model servers.

backends.py   HTTP servers that respond with the track of their Pod
build.py      builds Envoy Gateway at the version in go.mod, and keeps it in the cache
load.py       requests through the gateway, counted by track
processes.py  starts Envoy Gateway and Envoy
trial.py      the trial as a process: python -m tests.support.gateway.trial OUT.json
"""
