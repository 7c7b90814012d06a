#!/bin/sh
# A QOS and an account for bftrainer's pilots, for sites with slurmdbd; run it as a Slurm administrator:
#
#   bftrainer-qos.sh NODES USER...      at most NODES nodes at a time for pilots of these users
#
# It can be run again, to change NODES or to add users. bftrainer's settings for it: slurm_qos=bftrainer,
# slurm_account=bftrainer. To undo it, first take AllowQos=bftrainer out of slurm.conf and restart slurmctld, which may
# end without the QOS; then: sacctmgr delete account bftrainer; sacctmgr delete qos bftrainer
#
# The account keeps pilots out of the limits and the shares of the users' own accounts. The QOS:
#   UsageFactor=0         pilots are not charged: no fair share, no budget
#   Priority=0            nothing is behind them
#   Flags=NoReserve       backfill keeps no nodes free for a pilot that waits
#   GrpTRES=node=NODES    never more nodes than this together
#   MaxTRESPerJob=node=1  a pilot has one node; a job of another kind is not let in
#   PreemptMode=cancel    with PreemptType=preempt/qos: pilots are cancelled, not requeued
#   GraceTime=0           and hear SIGTERM at once
# With PreemptType=preempt/qos, your own QOS say whom they preempt; for the one called normal:
#   sacctmgr -i modify qos normal set Preempt=bftrainer
set -eu

nodes=${1:?say how many nodes pilots may have together, and which users have pilots}
shift

has() { test -n "$(sacctmgr -n -P show "$@")"; }

has qos bftrainer || sacctmgr -i add qos bftrainer
sacctmgr -i modify qos bftrainer set UsageFactor=0 Priority=0 Flags=NoReserve GrpTRES=node="$nodes" \
	MaxTRESPerJob=node=1 PreemptMode=cancel GraceTime=0
has account bftrainer || sacctmgr -i add account bftrainer Description="pilots of bftrainer"
for user in "$@"; do
	has assoc where account=bftrainer user="$user" || sacctmgr -i add user "$user" account=bftrainer
	sacctmgr -i modify user where name="$user" account=bftrainer set qos=bftrainer DefaultQOS=bftrainer
done
