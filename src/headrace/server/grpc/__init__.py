"""The gRPC door: the .proto's services over the calls that every door shares."""
