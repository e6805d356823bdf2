package idemhttp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// TenantFunc returns the tenant of a request. Two tenants' equal keys never share a record. It
// must take the tenant from data that an authorizer has verified, never from the body or a
// header that the client sets. It returns [ErrTenantMissing] or "" if the request has none; the
// answer is then 403. Any other error goes to the runtime unchanged. A tenant of more than
// 64 bytes counts as none: if the identity is longer, such as an ARN, return a part or a
// digest of it. It must be safe for concurrent use.
type TenantFunc func(ctx context.Context, r *Request) (string, error)

// ErrTenantMissing is the error of a [TenantFunc] for a request without a tenant.
var ErrTenantMissing = errors.New("idemhttp: the request has no tenant")

// SingleTenant is the [TenantFunc] of a service without tenants, for [idem.SingleTenant]: all
// callers share one space of keys, and a caller who guesses a key and its request gets its
// response. It must be given, so that a reviewer sees it.
func SingleTenant(context.Context, *Request) (string, error) { return idem.SingleTenant, nil }

// Claim takes the tenant from a claim, such as "sub", of a token that a JWT authorizer or a
// Cognito user pool's authorizer has verified. A user who can write the claim chooses the
// tenant. A user pool lets users write their "custom:" attributes through every app client
// that does not forbid it: use only an attribute that is immutable or that no app client
// may write
// (https://docs.aws.amazon.com/cognito/latest/developerguide/user-pool-settings-attributes.html).
// If the tokens of several issuers reach one function, use [IssuerClaim]. An empty name
// panics.
func Claim(name string) TenantFunc {
	mustName("Claim", name)
	return func(_ context.Context, r *Request) (string, error) {
		return present(r.Identity.Claims[name])
	}
}

// AuthorizerValue takes the tenant from the context that a Lambda authorizer
// returned: a string, or an integer that is exact as a double. An empty name
// panics.
func AuthorizerValue(name string) TenantFunc {
	mustName("AuthorizerValue", name)
	return func(_ context.Context, r *Request) (string, error) {
		switch v := r.Identity.Authorizer[name].(type) {
		case string:
			return present(v)
		case float64:
			const exact = 1 << 53
			if v == math.Trunc(v) && -exact < v && v < exact {
				return strconv.FormatInt(int64(v), 10), nil
			}
		}
		return "", ErrTenantMissing
	}
}

// IAMAccount takes the AWS account that signed the request as the tenant.
func IAMAccount(_ context.Context, r *Request) (string, error) {
	return present(r.Identity.AccountID)
}

// IAMUser takes the unique id of the IAM user or role that signed the request as
// the tenant. A role is one tenant for all who assume it: its session name is left
// out, because a client that tries again from another instance has another one. If
// users assume a role under their own names, as with IAM Identity Center, set
// [Options.Principal] to [IAMSession].
//
// A federated identity has no id of its own and is refused with 403 tenant_missing. Use
// [CognitoIdentity] for identities of a Cognito identity pool, and [IAMSession] for those of
// GetFederationToken. A function URL does not say which identity of a pool has signed. Such
// requests are recognised by the session name that the pool gives, and need an API Gateway
// API.
func IAMUser(_ context.Context, r *Request) (string, error) {
	id, _, session := strings.Cut(r.Identity.UserID, ":")
	switch {
	case r.Identity.isPooled():
		return "", tenantMissing("IAMUser would make one tenant of all identities of a Cognito identity pool: the service " +
			"must use idemhttp.CognitoIdentity, behind an API, which tells them apart")
	case session && strings.Trim(id, "0123456789") == "":
		// The account's id comes first.
		return "", tenantMissing("IAMUser would make one tenant of all federated users of an account: the service must " +
			"use idemhttp.IAMSession")
	}
	return present(id)
}

// IAMSession takes the whole unique id of the IAM principal that signed the request. A
// role's is followed by ":" and the session's name, which is a user's name if users
// assume the role under their own names. The id may be longer than the 64 bytes of a
// tenant, but fits as [Options.Principal]. A Cognito identity pool gives all its identities
// one session name: they are refused as in [IAMUser].
func IAMSession(_ context.Context, r *Request) (string, error) {
	if r.Identity.isPooled() {
		return "", tenantMissing("IAMSession would take all identities of a Cognito identity pool for one: the service " +
			"must use idemhttp.CognitoIdentity, behind an API, which tells them apart")
	}
	return present(r.Identity.UserID)
}

// poolSession ends the user id of every identity of a Cognito identity pool: it is the
// name of the sessions that the pool's enhanced flow opens
// (https://docs.aws.amazon.com/cognito/latest/developerguide/authentication-flow.html).
const poolSession = ":CognitoIdentityCredentials"

// isPooled reports whether a Cognito identity pool gave the credentials, so that many
// users have one user id.
func (id *Identity) isPooled() bool {
	return id.CognitoIdentityID != "" || strings.HasSuffix(id.UserID, poolSession)
}

// tenantMissing is why a request has no tenant, in words that its client may read.
type tenantMissing string

func (e tenantMissing) Error() string { return "idemhttp: " + string(e) }

// Is makes the error match [ErrTenantMissing].
func (e tenantMissing) Is(target error) bool { return target == ErrTenantMissing }

// CognitoIdentity takes the identity pool's id of the principal that signed the
// request as the tenant.
func CognitoIdentity(_ context.Context, r *Request) (string, error) {
	return present(r.Identity.CognitoIdentityID)
}

// APIKey takes the id of the API key as the tenant. API Gateway's keys are for metering:
// a caller who learns a key can call as its tenant.
func APIKey(_ context.Context, r *Request) (string, error) {
	return present(r.Identity.APIKeyID)
}

// LambdaTenant takes the tenant id of the Lambda invocation as the tenant.
func LambdaTenant(_ context.Context, r *Request) (string, error) {
	return present(r.Identity.TenantID)
}

// present refuses a tenant that would mean "no tenant".
func present(tenant string) (string, error) {
	if tenant == "" || tenant == idem.SingleTenant {
		return "", ErrTenantMissing
	}
	return tenant, nil
}

func mustName(what, name string) {
	if name == "" {
		panic(&idem.ConfigError{What: "idemhttp." + what, Problem: "the name is empty"})
	}
}

// IssuerClaim takes the tenant from a claim of a verified token and from its issuer (iss).
// It is for functions that get tokens of several issuers: a subject need only be unique
// within its issuer (RFC 7519, 4.1.2). Both together can be longer than a tenant may be, so
// the tenant is their SHA-256, 43 characters of base64url. See [Claim] for the claims to
// use. An empty name panics.
func IssuerClaim(name string) TenantFunc {
	mustName("IssuerClaim", name)
	return func(_ context.Context, r *Request) (string, error) {
		both := idem.JoinValues(r.Identity.Claims["iss"], r.Identity.Claims[name])
		if both == "" {
			return "", ErrTenantMissing
		}
		sum := sha256.Sum256([]byte(both))
		return base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}
