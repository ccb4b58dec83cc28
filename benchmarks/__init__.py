"""How fast Headrace is on this machine, beside its peers. `make bench` runs it."""
