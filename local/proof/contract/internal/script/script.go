// Package script is what the test and its function say to each other.
package script

// Headers of a request; they do not count for its fingerprint.
const (
	// CaseHeader names the script to play.
	CaseHeader = "X-Case"
	// VariantHeader chooses the options of the contract, see the Variant constants.
	VariantHeader = "X-Variant"
	// FirstSentHeader tells a request's age to VariantTooOld.
	FirstSentHeader = "First-Sent"
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
	// the handler runs, and is answered with an Answer when the handler may continue.
	EnvControl = "CONTRACT_CONTROL"
)

// Flavours of the function.
const (
	HTTPAPI     = "HTTPAPI"
	RESTAPI     = "RESTAPI"
	FunctionURL = "FunctionURL"
	ALB         = "ALB"
)

// Variants of the contract's options; the empty one is the plain contract.
const (
	VariantPrincipal = "principal" // bound to a principal, and there is none
	VariantTooOld    = "tooold"    // refuses what FirstSentHeader calls too old
	VariantVersion   = "version"   // another version of the responses
	VariantWait      = "wait"      // waits for a duplicate
	VariantSmall     = "small"     // a store that keeps small responses only
	VariantStep      = "step"      // the handler does all in an at-most-once step
)

// SmallResult is what VariantSmall keeps, in bytes.
const SmallResult = 1000

// Answer is what the handler does.
type Answer struct {
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Cookies []string            `json:"cookies,omitempty"`
	Body    []byte              `json:"body,omitempty"`
	// Base64 hands the body to the gateway as Base64.
	Base64 bool `json:"base64,omitempty"`
	// NotExecuted says so next to the response.
	NotExecuted bool `json:"notExecuted,omitempty"`
	// Error is returned in place of a response; Permanent marks it.
	Error     string `json:"error,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
	Panic     bool   `json:"panic,omitempty"`
	// Hang never returns, and ignores the context.
	Hang bool `json:"hang,omitempty"`
}
