package guest

import (
	"encoding/json"
	"reflect"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Warm tells the SDK of a type that steps return or jobs are enqueued with, so
// that what encoding/json has to find out about it is part of the module's
// image instead of every attempt. The types of handlers are known anyway.
// Without it everything works, a little slower.
func Warm[T any]() {
	warmers = append(warmers, func() {
		v := reflect.New(reflect.TypeFor[T]())
		fill(v.Elem(), 0)
		if b, err := json.Marshal(v.Interface()); err == nil {
			_ = json.Unmarshal(b, reflect.New(reflect.TypeFor[T]()).Interface())
		}
	})
}

// warm answers runner_warm. It calls no handler; a type's own MarshalJSON is
// called on a zero value, whose failure or panic is nobody's concern.
func warm() int32 {
	for _, w := range warmers {
		_ = guarded(func() error {
			w()
			return nil
		})
	}
	// The answers that every handler reads and writes sooner or later.
	if b, err := wire.AppendMeta(nil, abi.Meta{}); err == nil {
		_, _ = wire.ReadMeta(b)
	}
	_, _ = wire.ReadEnqueued(wire.AppendEnqueued(nil, []abi.EnqueueResult{{ID: "warm"}}))
	_, _ = wire.ReadFailure(wire.AppendFailure(nil, abi.Failure{Message: "warm"}))
	return 0
}

// maxFill bounds how deep fill goes into types that contain themselves.
const maxFill = 4

// fill gives v one of everything, so that a walk over it meets every type.
func fill(v reflect.Value, depth int) {
	if depth > maxFill {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 { // bytes may be a json.RawMessage, which zeroes would break
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth+1)
		}
	case reflect.Array:
		if v.Len() > 0 {
			fill(v.Index(0), depth+1)
		}
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), elem)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}
