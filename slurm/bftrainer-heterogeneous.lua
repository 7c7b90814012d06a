-- Keeps heterogeneous jobs from preempting bftrainer's pilots; every other job still does.
--
-- Slurm's backfill starts the first component of such a job on idle nodes, preempts pilots for the next, whose
-- start therefore fails, and has the whole job wait for two minutes. If it may not preempt for them, it waits with
-- the start until the daemon has cleared the nodes, within a second of the job's arrival.
--
-- Needs PreemptType=preempt/qos and JobSubmitPlugins=lua in slurm.conf (Slurm's plugin job_submit/lua). If your site has no job_submit.lua, put
-- this file beside slurm.conf under that name. If it has one, put this file there as it is, write
--   dofile("/etc/slurm/bftrainer-heterogeneous.lua")
-- before your own functions, and call bftrainer_heterogeneous(job) at the end of your slurm_job_submit.
-- Slurm reads the file again when it changes.

-- The QOS of a job -> its twin for heterogeneous jobs, which does not preempt pilots.
-- bftrainer-heterogeneous.sh makes the twins. Jobs of a QOS that is not here keep it.
bftrainer_twins = { normal = "normal-het" }
-- The QOS of jobs that name none.
bftrainer_usual_qos = "normal"

function bftrainer_heterogeneous(job)
	local offset = job.het_job_offset
	if offset == nil or offset == slurm.NO_VAL then -- no component of one
		return
	end
	local twin = bftrainer_twins[job.qos or job.default_qos or bftrainer_usual_qos]
	if twin ~= nil then
		job.qos = twin
	end
end

function slurm_job_submit(job, partitions, uid)
	bftrainer_heterogeneous(job)
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
