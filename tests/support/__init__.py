"""What tests of several kinds share; no test lives here."""
