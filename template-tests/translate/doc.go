// Package translate makes files for SAM and Terraform from a template of the constructs. It panics with
// the name of a property or a function of CloudFormation that it does not know. Its caller compares what it makes
// with the template.
package translate
