// Package translate makes files for SAM and Terraform from a template of the constructs. A resource, a
// property or a function of CloudFormation that it does not know makes it panic with its name.
package translate
