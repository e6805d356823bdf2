package spec

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Kinds are the resource types in the extract: those that package infra makes.
var Kinds = []string{
	"AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Authorizer", "AWS::ApiGatewayV2::Integration",
	"AWS::ApiGatewayV2::Route",
	"AWS::ApiGatewayV2::Stage",
	"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "AWS::DynamoDB::GlobalTable", "AWS::Events::Rule",
	"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::IAM::Role",
	"AWS::Lambda::EventInvokeConfig", "AWS::Lambda::EventSourceMapping",
	"AWS::Lambda::Function", "AWS::Lambda::Permission", "AWS::Logs::LogGroup", "AWS::SNS::Topic", "AWS::SNS::TopicPolicy",
	"AWS::SQS::Queue", "AWS::SQS::QueuePolicy",
}

type dbProperty struct {
	Type     dbType
	Required bool
	Replaces string `json:"causesReplacement"`
}

type dbType struct {
	Type      string
	Element   *dbType
	Types     []dbType
	Reference struct {
		Ref string `json:"$ref"`
	}
	AllowedValues []any
}

// Extract reads the db.json.gz of the npm package.
func Extract(db io.Reader, kinds []string) (*Spec, error) {
	plain, err := gzip.NewReader(db)
	if err != nil {
		return nil, err
	}
	var in struct {
		Schema struct {
			Resource struct {
				Entities []struct {
					CloudFormationType string
					Properties         map[string]dbProperty
				}
			}
			TypeDefinition struct {
				Entities []struct {
					ID         string `json:"$id"`
					Properties map[string]dbProperty
				}
			}
		}
	}
	if err := json.NewDecoder(plain).Decode(&in); err != nil {
		return nil, err
	}
	types := map[string]map[string]dbProperty{}
	for _, t := range in.Schema.TypeDefinition.Entities {
		types[t.ID] = t.Properties
	}
	s := &Spec{Resources: map[string]Resource{}, Types: map[string]map[string]Property{}}
	var properties func(map[string]dbProperty) map[string]Property
	var typeOf func(dbType) Type
	typeOf = func(t dbType) Type {
		out := Type{Kind: t.Type}
		for _, v := range t.AllowedValues {
			out.Allowed = append(out.Allowed, fmt.Sprint(v))
		}
		if t.Element != nil {
			e := typeOf(*t.Element)
			out.Element = &e
		}
		for _, one := range t.Types {
			out.Types = append(out.Types, typeOf(one))
		}
		if ref := t.Reference.Ref; ref != "" {
			out.Ref = ref
			if _, ok := s.Types[ref]; !ok {
				s.Types[ref] = nil // for types that contain themselves
				s.Types[ref] = properties(types[ref])
			}
		}
		return out
	}
	properties = func(from map[string]dbProperty) map[string]Property {
		all := make(map[string]Property, len(from))
		for name, p := range from {
			all[name] = Property{typeOf(p.Type), p.Required, p.Replaces}
		}
		return all
	}
	for _, r := range in.Schema.Resource.Entities {
		if slices.Contains(kinds, r.CloudFormationType) {
			s.Resources[r.CloudFormationType] = Resource{properties(r.Properties)}
		}
	}
	for _, kind := range kinds {
		if _, ok := s.Resources[kind]; !ok {
			return nil, fmt.Errorf("the specification has no %s", kind)
		}
	}
	return s, nil
}
