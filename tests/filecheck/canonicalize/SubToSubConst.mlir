// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Sub from a number becomes a reversed SubConst, a Sub of a number an AddConst of the negative number.
// WEIGHT three = 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> (tensor<2x4x6xf32>, tensor<2x4x6xf32>) {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %three = "top.Weight"() : () -> tensor<f32> loc("three")
    %y1 = "top.Sub"(%three, %x) : (tensor<f32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y1")
    %y2 = "top.Sub"(%x, %three) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("y2")
    func.return %y1, %y2 : tensor<2x4x6xf32>, tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y1 = "top.SubConst"(%x) {const_val = 3.000000e+00 : f64, {{.*}}, is_reverse = true}{{.*}} -> tensor<2x4x6xf32> loc("y1")
// CHECK-NEXT: %y2 = "top.AddConst"(%x) {const_val = -3.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y2")
// CHECK-NEXT: func.return %y1, %y2 : tensor<2x4x6xf32>, tensor<2x4x6xf32>
