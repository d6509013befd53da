"""The kinds that the operator reconciles. To add one is to add a line here."""

from vmafx.operator.job.kind import JOB
from vmafx.operator.node.kind import NODE

KINDS = (JOB, NODE)
