# lme4's answers on more data: its own, what R ships, and simulated wide effects.
# Run in this folder: Rscript more.R   (writes more.json; needs lme4, nlme, MASS, jsonlite)
# Columns of the fixed effects are stored as they are, so that tests need no contrasts.
suppressMessages({library(lme4); library(jsonlite)})

tight <- glmerControl(optimizer = "bobyqa", tolPwrss = 1e-12,
                      optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                      check.conv.singular = "ignore")
tightl <- lmerControl(optimizer = "bobyqa",
                      optCtrl = list(rhoend = 1e-10, maxfun = 1e5),
                      check.conv.singular = "ignore")

case <- function(formula, data, clusters, family = "gaussian", nAGQ = 1,
                 weights = NULL, reml = TRUE, ...) {
  data$w <- if (is.null(weights)) 1 else data[[weights]]
  start <- proc.time()[["user.self"]]
  model <- if (family == "gaussian") {
    lmer(formula, data, REML = reml, control = tightl)
  } else {
    suppressWarnings(glmer(formula, data, family, weights = w, nAGQ = nAGQ,
                           control = tight))
  }
  seconds <- proc.time()[["user.self"]] - start
  X <- getME(model, "X")[, -1, drop = FALSE]
  components <- as.data.frame(VarCorr(model))
  y <- getME(model, "y")
  list(columns = as.list(colnames(X)), X = unname(X), y = unname(y), weights = data$w,
       clusters = lapply(data[clusters], as.character),
       family = family, n_quadrature = nAGQ, reml = reml, options = list(...),
       fixed = unname(fixef(model)),
       errors = unname(sqrt(diag(as.matrix(vcov(model))))),
       deviations = components[is.na(components$var2), c("grp", "var1", "sdcor")],
       correlations = components$sdcor[!is.na(components$var2)],
       log_likelihood = as.numeric(logLik(model)),
       singular = isSingular(model), seconds = seconds)
}

cases <- list()
data(bacteria, package = "MASS"); data(epil, package = "MASS")
data(Orthodont, package = "nlme"); data(Machines, package = "nlme")
plain <- function(data) as.data.frame(lapply(data, function(x)
  if (is.ordered(x)) factor(as.character(x)) else x))

bacteria$y <- as.integer(bacteria$y == "y")
cases$bacteria <- case(y ~ trt + week + (1 | ID), bacteria, "ID", "binomial", 25)
cases$bacteria_laplace <- case(y ~ trt + week + (1 | ID), bacteria, "ID", "binomial")

epil$lbase <- log(epil$base / 4)
cases$epil <- case(y ~ lbase * trt + lage + V4 + (1 | subject), epil, "subject",
                   "poisson", 25)
cases$epil_slopes <- case(y ~ lbase * trt + lage + V4 + (V4 | subject), epil,
                          "subject", "poisson", slopes = "V4")

persons <- levels(VerbAgg$id)[seq(1, 316, by = 6)]
verbal <- droplevels(VerbAgg[VerbAgg$id %in% persons, ])
verbal$y <- as.integer(verbal$r2 == "Y")
cases$VerbAgg <- case(y ~ Anger + Gender + btype + situ + mode + (1 | id), verbal,
                      "id", "binomial", 25)

cases$Arabidopsis <- case(total.fruits ~ nutrient + amd + rack + status + (1 | gen),
                          Arabidopsis, "gen", "poisson", 25)
cases$Arabidopsis_nested <- case(total.fruits ~ amd + status + (1 | popu / gen),
                                 Arabidopsis, c("popu", "gen"), "poisson")

orthodont <- plain(Orthodont)
cases$Orthodont <- case(distance ~ age * Sex + (age | Subject), orthodont, "Subject",
                        slopes = "age")
cases$Orthodont_ml <- case(distance ~ age * Sex + (1 | Subject), orthodont, "Subject",
                           reml = FALSE)
cake <- plain(cake)
cake$batch <- interaction(cake$recipe, cake$replicate)
cases$cake <- case(angle ~ temp + recipe + (1 | batch), cake, "batch")
machines <- plain(Machines)
cases$Machines <- case(score ~ Machine + (1 | Worker) + (1 | Worker:Machine),
                       machines, c("Worker", "Machine"))
ChickWeight <- plain(ChickWeight)
cases$ChickWeight <- case(weight ~ Time + Diet + (Time || Chick), ChickWeight, "Chick",
                          slopes = "Time", correlated = FALSE)

set.seed(1)
lectures <- droplevels(InstEval[InstEval$d %in% sample(levels(InstEval$d), 12), ])
lectures <- droplevels(lectures[lectures$s %in% sample(levels(lectures$s), 180), ])
lectures <- plain(lectures)
cases$InstEval <- case(y ~ service + (1 | s) + (1 | d), lectures, c("s", "d"),
                       crossed = TRUE)

# effects so wide that 25 nodes begin to be few: 120 persons, seven visits each
set.seed(4)
person <- rep(1:120, each = 7)
wide <- data.frame(person, month = rep(c(0, 1, 2, 3, 6, 9, 12), 120),
                   treated = rep(rbinom(120, 1, 0.5), each = 7))
wide$y <- rbinom(840, 1, plogis(-1 - 0.35 * wide$month - 0.2 * wide$treated +
                                3 * rnorm(120)[person]))
cases$wide <- case(y ~ month + treated + (1 | person), wide, "person", "binomial", 25)

writeLines(toJSON(list(lme4 = as.character(packageVersion("lme4")), cases = cases),
                  digits = NA, auto_unbox = TRUE, null = "null", na = "null"),
           "more.json")
for (name in names(cases)) cat(name, length(cases[[name]]$y),
                               cases[[name]]$log_likelihood, cases[[name]]$singular, "\n")
