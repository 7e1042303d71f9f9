// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An AddConst of 0 is removed.
// WEIGHT zero = 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %zero = "top.Weight"() : () -> tensor<f32> loc("zero")
    %a = "top.Add"(%x, %zero) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Sin"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
