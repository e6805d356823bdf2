// Package translate makes files for SAM and Terraform from a template of the constructs. Its
// caller compares what it makes with the template, and with the schema of Terraform's provider.
package translate
