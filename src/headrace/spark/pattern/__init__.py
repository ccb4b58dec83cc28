"""`subscribePattern`: which topics a pattern of java.util.regex names.

    characters   what classes and properties mean, of the characters that names can have
    nodes        a pattern as a tree, and how it is matched
    tokens       the text of a pattern, character by character
    syntax       the text as such a tree
    topics       a pattern as users give it, and the limits of its work

Spark's own Kafka source hands the pattern to Java. Python's `re` reads many of them
otherwise, and can be kept busy for ever by one bad pattern.
"""
