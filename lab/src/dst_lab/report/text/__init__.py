"""Words for the page: prose as HTML, terms explained, and the sentences that answer a question."""
