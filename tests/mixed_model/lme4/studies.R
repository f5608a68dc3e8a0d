# lme4's answers to simulated studies: Rscript studies.R FOLDER
# FOLDER has SEED.csv with columns y, x0, x1, cluster; prints SEED, log-likelihood,
# scale and whether lme4 calls the fit singular. benchmarks/study_glmm.py runs it.
suppressMessages(library(lme4))
for (path in list.files(commandArgs(TRUE)[1], "csv$", full.names = TRUE)) {
  rows <- read.csv(path)
  spent <- system.time(model <- suppressMessages(suppressWarnings(
    glmer(y ~ x0 + x1 + (1 | cluster), data = rows, family = binomial, nAGQ = 25))))
  cat(sub(".csv", "", basename(path)), sprintf("%.12g", logLik(model)),
      sprintf("%.12g", getME(model, "theta")), isSingular(model),
      sprintf("%.3f", sum(spent[c("user.self", "sys.self")])), "\n")
}
