// Package commitmeta codes the metadata string of a committed offset: who committed which commit of a task.
package commitmeta
