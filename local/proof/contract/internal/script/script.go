// Package script is what the test and its function say to each other, beyond the table of package contract.
package script

// Headers of a request; they do not count for its fingerprint.
const (
	// CaseHeader names the script to play.
	CaseHeader = "X-Case"
	// StepHeader has the handler do all in an at-most-once step.
	StepHeader = "X-Step"
)

// Environment of the function, in addition to the product's own.
const (
	// EnvFlavour is one of the Flavour constants.
	EnvFlavour = "CONTRACT_FLAVOUR"
	// EnvProfile is the number of an idemhttp.Profile.
	EnvProfile = "CONTRACT_PROFILE"
	// EnvClaimBudget is the engine's ClaimBudget, a duration.
	EnvClaimBudget = "CONTRACT_CLAIM_BUDGET"
	// EnvControl is the URL of the test's server. GET <url>/<case>?pid=<n> tells that
	// the handler runs, and is answered with a contract.Answer when the handler may continue.
	EnvControl = "CONTRACT_CONTROL"
)

// Flavours of the function.
const (
	HTTPAPI     = "HTTPAPI"
	RESTAPI     = "RESTAPI"
	FunctionURL = "FunctionURL"
	ALB         = "ALB"
)
