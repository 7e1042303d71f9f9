// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Scale takes in the constant that an AddConst before it adds.
// WEIGHT y_scale = 1 2 3 4
// WEIGHT y_scale_bias = 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %a = "top.AddConst"(%x) {const_val = 3.000000e+00 : f64} : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("a")
    %y_scale = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
    %y_scale_bias = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
    %y = "top.Scale"(%a, %y_scale, %y_scale_bias) : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_1")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias_1")
// CHECK-NEXT: %y = "top.Scale"(%x, %0, %1) {{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>
