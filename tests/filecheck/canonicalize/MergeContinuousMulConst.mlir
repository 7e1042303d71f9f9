// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two MulConsts in a row become one by the product of the numbers.
// WEIGHT three = 3
// WEIGHT half = 0.5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %three = "top.Weight"() : () -> tensor<1x1x1xf32> loc("three")
    %a = "top.Mul"(%x, %three) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("a")
    %half = "top.Weight"() : () -> tensor<f32> loc("half")
    %y = "top.Div"(%a, %half) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MulConst"(%x) {const_val = 6.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
