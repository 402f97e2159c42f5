"""The caching allocator's settings: parse, check, explain, per version; replay; search."""
