"""The API reference, made from what the doors themselves are made from.

    .venv/bin/python -m scripts.generate_reference

    http.py   docs/reference/http.md   from the table of routes, by its OpenAPI document
    grpc.py   docs/reference/grpc.md   from the .proto and its comments

Whatever a page is to say better is said better in its source: the table of routes,
`headrace.wire.http.meanings`, or the .proto.
"""
