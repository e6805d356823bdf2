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
	// Authorizer of the API (authorizer): iam, jwt or none. Empty means iam.
	Authorizer string
	// Issuer and Audience of the tokens (issuer, audience). Several audiences are
	// separated by commas. For jwt.
	Issuer, Audience string
	// Tenant is the claim that holds the tenant (tenant). Empty means sub. For jwt.
	Tenant string
	// Provider is the URL of the payment provider (provider).
	Provider string
	// Tracing turns X-Ray on (tracing): true or false.
	Tracing bool
}

// settings are the names in the context.
var settings = map[string]func(*Settings, string) error{
	"account":    func(s *Settings, v string) error { s.Account = v; return nil },
	"region":     func(s *Settings, v string) error { s.Region = v; return nil },
	"prefix":     func(s *Settings, v string) error { s.Prefix = v; return nil },
	"authorizer": func(s *Settings, v string) error { s.Authorizer = v; return nil },
	"issuer":     func(s *Settings, v string) error { s.Issuer = v; return nil },
	"audience":   func(s *Settings, v string) error { s.Audience = v; return nil },
	"tenant":     func(s *Settings, v string) error { s.Tenant = v; return nil },
	"provider":   func(s *Settings, v string) error { s.Provider = v; return nil },
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
	if s.Authorizer == "" {
		s.Authorizer = "iam"
	}
	switch s.Authorizer {
	case "iam", "none":
		if s.Tenant != "" {
			invalid("tenant is %q: it is for the authorizer jwt; leave it out", s.Tenant)
		}
	case "jwt":
		if s.Issuer == "" {
			invalid("issuer is missing: the authorizer jwt needs the URL of the tokens' issuer")
		}
		if len(s.audiences()) == 0 {
			invalid("audience is missing: the authorizer jwt needs what the tokens are made for")
		}
	default:
		invalid("authorizer is %q: use iam, jwt or none", s.Authorizer)
	}
	if s.Authorizer != "jwt" && s.Issuer+s.Audience != "" {
		invalid("issuer and audience are for the authorizer jwt: leave them out")
	}
	if (s.Account == "") != (s.Region == "") {
		invalid("account and region belong together: give both, or none")
	}
	if s.Provider != "" && !strings.HasPrefix(s.Provider, "https://") {
		invalid("provider is %q: use an https URL", s.Provider)
	}
	return errors.Join(problems...)
}

// audiences are those of the tokens, without those that are empty.
func (s *Settings) audiences() []string {
	return strings.FieldsFunc(s.Audience, func(c rune) bool { return c == ',' || c == ' ' })
}

// tenantSetting is the payments function's setting for the tenant.
func (s *Settings) tenantSetting() string {
	switch {
	case s.Authorizer != "jwt":
		return s.Authorizer
	case s.Tenant == "":
		return "jwt:sub"
	}
	return "jwt:" + s.Tenant
}

func (s *Settings) stack(name, description string) *awscdk.StackProps {
	p := &awscdk.StackProps{StackName: jsii.String(s.Prefix + name), Description: &description}
	if s.Account != "" {
		p.Env = &awscdk.Environment{Account: &s.Account, Region: &s.Region}
	}
	return p
}
