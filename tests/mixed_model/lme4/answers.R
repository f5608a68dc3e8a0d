# lme4's answers, and the rows they are about, for the tests beside this file.
# Run in this folder: Rscript answers.R   (writes answers.json; needs lme4, jsonlite)
suppressMessages({library(lme4); library(jsonlite)})

tight <- glmerControl(optimizer = "bobyqa", tolPwrss = 1e-12,
                      optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                      check.conv.singular = "ignore")
tightl <- lmerControl(optimizer = "bobyqa",
                      optCtrl = list(rhoend = 1e-10, maxfun = 1e5),
                      check.conv.singular = "ignore")

answer <- function(model) {
  effects <- ranef(model, condVar = TRUE)
  # posterior variances are known for one random effect or correlated ones
  spread <- lapply(effects, function(e) {
    v <- attr(e, "postVar")
    if (is.array(v)) t(apply(v, 3, function(m) sqrt(diag(as.matrix(m))))) else NULL
  })
  components <- as.data.frame(VarCorr(model))
  list(fixed = unname(fixef(model)),
       errors = unname(sqrt(diag(as.matrix(vcov(model))))),
       theta = unname(getME(model, "theta")),
       components = components[c("grp", "var1", "var2", "vcov", "sdcor")],
       log_likelihood = as.numeric(logLik(model)),
       n_parameters = attr(logLik(model), "df"),
       singular = isSingular(model),
       effects = lapply(effects, as.matrix),
       labels = lapply(effects, rownames),
       spread = spread)
}

rows <- function(data, columns) lapply(data[columns], function(x)
  if (is.factor(x)) as.character(x) else x)

cases <- list()

# Binomial, with trials
columns <- c("herd", "incidence", "size", "period")
formula <- cbind(incidence, size - incidence) ~ period + (1 | herd)
cases$cbpp <- list(rows = rows(cbpp, columns), fits = list(
  laplace = answer(glmer(formula, cbpp, binomial, control = tight)),
  quadrature = answer(glmer(formula, cbpp, binomial, nAGQ = 25, control = tight)),
  probit = answer(glmer(formula, cbpp, binomial("probit"), nAGQ = 25, control = tight)),
  cloglog = answer(glmer(formula, cbpp, binomial("cloglog"), nAGQ = 25,
                         control = tight))))

# Poisson; broods within locations
columns <- c("TICKS", "BROOD", "LOCATION", "YEAR", "cHEIGHT")
cases$grouseticks <- list(rows = rows(grouseticks, columns), fits = list(
  laplace = answer(glmer(TICKS ~ YEAR + cHEIGHT + (1 | BROOD), grouseticks, poisson,
                         control = tight)),
  quadrature = answer(glmer(TICKS ~ YEAR + cHEIGHT + (1 | BROOD), grouseticks, poisson,
                            nAGQ = 25, control = tight)),
  nested = answer(glmer(TICKS ~ YEAR + cHEIGHT + (1 | LOCATION / BROOD), grouseticks,
                        poisson, control = tight))))

# Gaussian
both <- function(formula, data) list(
  ml = answer(lmer(formula, data, REML = FALSE, control = tightl)),
  reml = answer(lmer(formula, data, control = tightl)))
named <- function(prefix, fits) setNames(fits, paste0(prefix, names(fits)))
cases$sleepstudy <- list(rows = rows(sleepstudy, names(sleepstudy)), fits = c(
  named("slopes_", both(Reaction ~ Days + (Days | Subject), sleepstudy)),
  named("uncorrelated_", both(Reaction ~ Days + (Days || Subject), sleepstudy)),
  named("intercepts_", both(Reaction ~ Days + (1 | Subject), sleepstudy)),
  named("only_slopes_", both(Reaction ~ Days + (0 + Days | Subject), sleepstudy))))
cases$Dyestuff <- list(rows = rows(Dyestuff, names(Dyestuff)),
                       fits = both(Yield ~ 1 + (1 | Batch), Dyestuff))
cases$Dyestuff2 <- list(rows = rows(Dyestuff2, names(Dyestuff2)),
                        fits = both(Yield ~ 1 + (1 | Batch), Dyestuff2))
cases$Penicillin <- list(rows = rows(Penicillin, names(Penicillin)),
                         fits = both(diameter ~ 1 + (1 | plate) + (1 | sample),
                                     Penicillin))
cases$Pastes <- list(rows = rows(Pastes, c("strength", "batch", "cask")),
                     fits = both(strength ~ 1 + (1 | batch / cask), Pastes))

# Simulated: slopes, offsets, no intercept, two levels
set.seed(20)
n <- 600
centre <- sample(20, n, TRUE)
ward <- sample(4, n, TRUE)
x <- rnorm(n); z <- rnorm(n, 2)
exposure <- runif(n, 0.5, 3)
b0 <- rnorm(20, 0, 0.7); b1 <- 0.5 * b0 + rnorm(20, 0, 0.4)
b2 <- matrix(rnorm(80, 0, 0.5), 20)
eta <- -0.5 + 0.8 * x - 0.2 * z + b0[centre] + b1[centre] * x
made <- data.frame(x = x, z = z, centre = centre, ward = ward, exposure = exposure,
                   died = rbinom(n, 1, plogis(eta)),
                   nested = rbinom(n, 1, plogis(eta + b2[cbind(centre, ward)])),
                   count = rpois(n, exposure * exp(eta / 2)))
cases$made <- list(rows = made, fits = list(
  slopes = answer(glmer(died ~ x + z + (x | centre), made, binomial, control = tight)),
  uncorrelated = answer(glmer(died ~ x + z + (x || centre), made, binomial,
                              control = tight)),
  intercepts = answer(glmer(died ~ x + z + (1 | centre), made, binomial, nAGQ = 25,
                            control = tight)),
  no_intercept = answer(glmer(died ~ 0 + x + z + (1 | centre), made, binomial,
                              nAGQ = 25, control = tight)),
  two_levels = answer(glmer(nested ~ x + z + (1 | centre / ward), made, binomial,
                            control = tight)),
  counts = answer(glmer(count ~ x + z + offset(log(exposure)) + (x | centre), made,
                        poisson, control = tight)),
  counts_quadrature = answer(glmer(count ~ x + z + offset(log(exposure)) +
                                   (1 | centre), made, poisson, nAGQ = 25,
                                   control = tight))))

writeLines(toJSON(list(lme4 = as.character(packageVersion("lme4")), cases = cases),
                  digits = NA, auto_unbox = TRUE, null = "null", na = "null"),
           "answers.json")
