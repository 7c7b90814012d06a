"""A script as it was written for Optuna: nothing in it is of bftrainer."""

import argparse
import time

import optuna

parser = argparse.ArgumentParser()
parser.add_argument("--wait", type=float, default=0.0)
parser.add_argument("--trials", type=int, default=100)
parser.add_argument("--storage")
args = parser.parse_args()


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0.0, 1.0)
    kind = trial.suggest_categorical("kind", ["flat", "steep"])
    for step in range(8):
        time.sleep(args.wait)
        value = (x - 0.3) ** 2 * (2 if kind == "steep" else 1) + 1.0 / (step + 1)
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


study = optuna.create_study(direction="minimize", study_name="own", storage=args.storage, load_if_exists=True)
study.optimize(objective, n_trials=args.trials)
print("best", study.best_value, study.best_params)
