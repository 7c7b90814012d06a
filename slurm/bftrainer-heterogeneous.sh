#!/bin/sh
# A twin of each QOS that preempts bftrainer's pilots, for its heterogeneous jobs: it preempts all that the QOS
# preempts but pilots. For sites with slurmdbd and PreemptType=preempt/qos; run it as a Slurm administrator, after
# bftrainer-qos.sh:
#
#   bftrainer-heterogeneous.sh QOS...      makes QOS-het of each, and lets all who have QOS use it
#
# bftrainer-heterogeneous.lua then gives the twins to heterogeneous jobs. A twin has the priority and the usage factor
# of its QOS; if the QOS has limits, set them for the twin, too (they count apart). Run it again when accounts get a
# QOS, or when a QOS preempts others than before. To undo it: take the .lua file out, restart slurmctld, then
# sacctmgr delete qos QOS-het
set -eu
test $# -gt 0 || { echo "say which QOS preempt bftrainer, for example: $0 normal" >&2; exit 2; }

change() { # sacctmgr fails where there is nothing to change
	said=$(sacctmgr -i "$@" 2>&1) || case "$said" in *"Nothing modified"*) ;; *) echo "sacctmgr $*: $said" >&2; exit 1 ;; esac
}

for qos in "$@"; do
	twin="$qos-het"
	known=$(sacctmgr -n -P show qos "$qos" format=Priority,UsageFactor,Preempt)
	test -n "$known" || { echo "there is no QOS $qos" >&2; exit 1; }
	preempt=$(echo "$known" | cut -d'|' -f3 | tr ',' '\n' | grep -vx bftrainer | paste -sd, -)
	priority=$(echo "$known" | cut -d'|' -f1)
	factor=$(echo "$known" | cut -d'|' -f2)
	if test -z "$(sacctmgr -n -P show qos "$twin")"; then
		# with its list at once: for a list that changes, 22.05 sometimes sees a loop where there is none
		sacctmgr -i add qos "$twin" Priority="$priority" UsageFactor="$factor" ${preempt:+Preempt="$preempt"}
	fi
	change modify qos "$twin" set Priority="$priority" UsageFactor="$factor"
	test "$preempt" = "$(sacctmgr -n -P show qos "$twin" format=Preempt)" ||
		change modify qos "$twin" set Preempt="$preempt"
	case ",$known," in *[\|,]bftrainer,*) ;; *) change modify qos "$qos" set Preempt="${preempt:+$preempt,}bftrainer" ;; esac
	change modify account root set qos+="$twin"
	# those with a list of their own do not follow their account's
	sacctmgr -n -P show associations format=Cluster,Account,User,QOS | while IFS='|' read -r cluster account user list; do
		case ",$list," in *",$twin,"*) continue ;; *",$qos,"*) ;; *) continue ;; esac
		if test -n "$user"; then
			change modify user where name="$user" account="$account" cluster="$cluster" set qos+="$twin"
		else
			change modify account where name="$account" cluster="$cluster" set qos+="$twin"
		fi
	done
done
