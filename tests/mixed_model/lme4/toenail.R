# lme4's answer on the toenail trial (De Backer et al. 1998), as HSAUR3 has it: effects
# are wide, and patients have seven rows or fewer.
# Run in this folder: Rscript toenail.R   (prints; toenail.json has what it printed, and
# the columns; needs lme4 and HSAUR3)
suppressMessages(library(lme4))
data(toenail, package = "HSAUR3")
tight <- glmerControl(optimizer = "bobyqa", tolPwrss = 1e-12,
                      optCtrl = list(rhoend = 1e-9, maxfun = 1e5))
model <- glmer(outcome ~ treatment * time + (1 | patientID), toenail, binomial,
               nAGQ = 25, control = tight)
print(summary(model))
print(logLik(model), digits = 12)
