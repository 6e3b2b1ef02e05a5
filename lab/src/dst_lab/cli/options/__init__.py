"""What a person types: the parser, the fields of a config as options, the axes of a grid."""
