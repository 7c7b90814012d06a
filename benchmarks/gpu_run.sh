#!/bin/sh
# Runs benchmarks/gpu.py on a machine that has nothing but Python with PyTorch for CUDA, from the folder that `make gpu` has packed
# there: sh benchmarks/gpu_run.sh. It installs nothing outside its folder, and is over within 8 minutes.
set -e
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
for folder in more wheels; do  # what bftrainer needs replaces what others do
    test ! -d "$here/$folder" ||
        "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$here/site" "$here/$folder"/*.whl
done
export PYTHONPATH="$here/site:$here/project" PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
date -u +%Y-%m-%d
cd "$here/project"
timeout 460 "$python" benchmarks/gpu.py --repeat 1 --seconds 10 "$@" 2>&1 | tee "$here/results.txt"
