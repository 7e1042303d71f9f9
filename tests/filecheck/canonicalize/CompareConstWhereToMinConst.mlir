// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Where that chooses the larger of a tensor and a number becomes a MaxConst, and that of the smaller a MinConst.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.CompareConst"(%x) {mode = "Less", const_val = 5.000000e-01 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %none = "top.None"() : () -> none
  %y = "top.Where"(%a, %none, %x) {x_is_const = true, x_const_val = 5.000000e-01 : f64, y_const_val = 0.000000e+00 : f64} : (tensor<2x4x6xf32>, none, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MaxConst"(%x) {const_val = 5.000000e-01 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
