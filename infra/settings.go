package infra

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Settings of the example app. They come from CDK's context; each field's comment
// has its name there.
type Settings struct {
	// Account and Region to deploy to (account, region). Empty means those of the
	// command line's credentials; the templates then fit everywhere.
	Account, Region string
	// Prefix of the stacks' names (prefix).
	Prefix string
	// API is the flavour of the API (api): http or rest. Empty means http.
	API Flavour
	// Authorizer of the API (authorizer): iam, jwt, lambda or none. Empty means iam.
	Authorizer string
	// Issuer and Audience of the tokens (issuer, audience). Several audiences are
	// separated by commas. For jwt.
	Issuer, Audience string
	// Tenant is the claim (jwt), or the member of the authorizer's context (lambda),
	// that holds the tenant (tenant). Empty means sub and tenant.
	Tenant string
	// AuthorizerARN is the authorizer's function (authorizerArn). For lambda.
	AuthorizerARN string
	// Provider is the URL of the payment provider (provider).
	Provider string
	// Tracing turns X-Ray on (tracing): true or false.
	Tracing bool
}

// settings are the names in the context.
var settings = map[string]func(*Settings, string) error{
	"account":       func(s *Settings, v string) error { s.Account = v; return nil },
	"region":        func(s *Settings, v string) error { s.Region = v; return nil },
	"prefix":        func(s *Settings, v string) error { s.Prefix = v; return nil },
	"api":           func(s *Settings, v string) error { s.API = Flavour(v); return nil },
	"authorizer":    func(s *Settings, v string) error { s.Authorizer = v; return nil },
	"issuer":        func(s *Settings, v string) error { s.Issuer = v; return nil },
	"audience":      func(s *Settings, v string) error { s.Audience = v; return nil },
	"tenant":        func(s *Settings, v string) error { s.Tenant = v; return nil },
	"authorizerArn": func(s *Settings, v string) error { s.AuthorizerARN = v; return nil },
	"provider":      func(s *Settings, v string) error { s.Provider = v; return nil },
	"tracing": func(s *Settings, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("tracing is %q: use true or false", v)
		}
		s.Tracing = v == "true"
		return nil
	},
}

// SettingNames are the names of the example app's settings in the context.
func SettingNames() []string { return slices.Sorted(maps.Keys(settings)) }

// SettingsOf reads the settings from an app's context and checks them.
func SettingsOf(app constructs.Construct) (*Settings, error) {
	s := &Settings{}
	var problems []error
	for _, name := range SettingNames() {
		v := app.Node().TryGetContext(&name)
		if v == nil {
			continue
		}
		text := fmt.Sprint(v)
		problems = append(problems, settings[name](s, strings.TrimSpace(text)))
	}
	return s, errors.Join(append(problems, s.check())...)
}

func (s *Settings) check() error {
	var problems []error
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s.API == "" {
		s.API = HTTPAPI
	}
	if s.API != HTTPAPI && s.API != RESTAPI {
		invalid("api is %q: use http or rest", s.API)
	}
	if s.Authorizer == "" {
		s.Authorizer = "iam"
	}
	switch s.Authorizer {
	case "iam", "none":
		if s.Tenant != "" {
			invalid("tenant is %q: it is for the authorizers jwt and lambda; leave it out", s.Tenant)
		}
	case "jwt":
		if s.Issuer == "" {
			invalid("issuer is missing: the authorizer jwt needs the URL of the tokens' issuer")
		}
		if s.API == HTTPAPI && s.Audience == "" {
			invalid("audience is missing: the authorizer jwt needs what the tokens are made for")
		}
	case "lambda":
		if s.AuthorizerARN == "" {
			invalid("authorizerArn is missing: the authorizer lambda needs the ARN of its function")
		}
	default:
		invalid("authorizer is %q: use iam, jwt, lambda or none", s.Authorizer)
	}
	if s.Authorizer != "jwt" && s.Issuer+s.Audience != "" {
		invalid("issuer and audience are for the authorizer jwt: leave them out")
	}
	if s.Authorizer != "lambda" && s.AuthorizerARN != "" {
		invalid("authorizerArn is for the authorizer lambda: leave it out")
	}
	if (s.Account == "") != (s.Region == "") {
		invalid("account and region belong together: give both, or none")
	}
	if s.Provider != "" && !strings.HasPrefix(s.Provider, "https://") {
		invalid("provider is %q: use an https URL", s.Provider)
	}
	return errors.Join(problems...)
}

// tenantSetting is the payments function's setting for the tenant.
func (s *Settings) tenantSetting() string {
	name := s.Tenant
	switch s.Authorizer {
	case "jwt":
		if name == "" {
			name = "sub"
		}
		return "jwt:" + name
	case "lambda":
		if name == "" {
			name = "tenant"
		}
		return "lambda:" + name
	}
	return s.Authorizer
}

func (s *Settings) stack(name, description string) *awscdk.StackProps {
	p := &awscdk.StackProps{StackName: jsii.String(s.Prefix + name), Description: &description}
	if s.Account != "" {
		p.Env = &awscdk.Environment{Account: &s.Account, Region: &s.Region}
	}
	return p
}
