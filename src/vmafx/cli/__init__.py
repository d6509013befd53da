"""What a person types. Arguments are parsed and results shown here; everything else lives in the packages below."""
