// RUN: tpusim opt -p 'canonicalize{also=where_too_large}' %s | filecheck %s
//
// On request: a Where that masks with a number below -3e30 before a Softmax masks with -1e4 instead.
// WEIGHT mask = 1 0 1 0 1 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %mask = "top.Weight"() : () -> tensor<2x4x6xf32> loc("mask")
    %none = "top.None"() : () -> none
    %a = "top.Where"(%mask, %x, %none) {x_is_const = false, x_const_val = 0.000000e+00 : f64, y_is_const = true, y_const_val = -3.3999999521443642e+38 : f64} : (tensor<2x4x6xf32>, tensor<2x4x6xf32>, none) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Softmax"(%a) {axis = 2} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %mask = "top.Weight"() : () -> tensor<2x4x6xf32> loc("mask")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %a = "top.Where"(%mask, %x, %none) {x_is_const = false, x_const_val = 0.000000e+00 : f64, y_is_const = true, y_const_val = -1.000000e+04 : f64}{{.*}} -> tensor<2x4x6xf32> loc("a")
// CHECK-NEXT: %y = "top.Softmax"(%a) {axis = 2 : si32}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
