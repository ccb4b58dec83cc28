"""The SDK: one set of words over an embedded node, blocking and asyncio."""
