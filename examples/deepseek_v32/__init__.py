"""DeepSeek V3.2 attention: MLA, lightning indexer, sparse attention."""
