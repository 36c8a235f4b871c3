# Runs the blocks of R of docs/cookbook.md, in a folder that has the dataset OUT: Rscript check.R FOLDER, in the root of the project.
# Each is parsed. One that needs a package that is not here, or what such a block makes, is SKIPPED. An error fails the check.

page <- readLines("docs/cookbook.md", encoding = "UTF-8")
begins <- which(page == "```r")
ends <- sapply(begins, function(at) at + which(page[-seq_len(at)] == "```")[1])
stopifnot(length(begins) > 1)
setwd(commandArgs(trailingOnly = TRUE)[1])
ran <- 0
lost <- character() # names that skipped blocks set
for (i in seq_along(begins)) {
  place <- paste0("docs/cookbook.md:", begins[i] + 1)
  block <- parse(text = page[(begins[i] + 1):(ends[i] - 1)], keep.source = TRUE)
  tokens <- getParseData(block)
  packages <- unique(c(tokens$text[tokens$token == "SYMBOL_PACKAGE"],
    unlist(lapply(block, function(call) if (is.call(call) && identical(call[[1]], quote(library))) as.character(call[[2]])))))
  lacking <- c(Filter(function(package) !requireNamespace(package, quietly = TRUE), packages), intersect(tokens$text[tokens$token == "SYMBOL"], lost))
  if (length(lacking) > 0) {
    cat("SKIPPED: the R of", place, "needs", paste(lacking, collapse = ", "), "\n")
    lost <- c(lost, unlist(lapply(block, function(call) if (is.call(call) && identical(call[[1]], quote(`<-`))) all.vars(call[[2]])[1])))
    next
  }
  invisible(capture.output(eval(block, globalenv())))
  ran <- ran + 1
}
cat("r:", ran, "of", length(begins), "blocks were run\n")
