// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// A Softmax of masked numbers reads them limited to -64 from below, because its exponential is a table.
// WEIGHT mask = 0 0 0 -1000000000 -1000000000 -1000000000

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %mask = "top.Weight"() : () -> tensor<6xf32> loc("mask")
    %a = "top.Add"(%x, %mask) : (tensor<2x4x6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Softmax"(%a) {axis = 2} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<2x4x6xbf16> loc("xa_bf16")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<6xbf16> loc("mask")
// CHECK-NEXT: %4 = "tpu.Add"(%2, %3) {{.*}} -> tensor<2x4x6xbf16> loc("a")
// CHECK-NEXT: %5 = "top.Weight"() : () -> tensor<2x4x6xbf16> loc("y_limited_const")
// CHECK-NEXT: %6 = "tpu.Max"(%4, %5) {{.*}} -> tensor<2x4x6xbf16> loc("y_limited")
// CHECK-NEXT: %7 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("y_exp_table")
// CHECK-NEXT: %8 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("y_exp_mantissa")
// CHECK-NEXT: %9 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("y_reciprocal_table")
// CHECK-NEXT: %10 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("y_reciprocal_mantissa")
// CHECK-NEXT: %11 = "tpu.Softmax"(%6, %7, %8, %9, %10) {axis = 2 : i64, log = false, beta = 1.000000e+00 : f64}{{.*}} -> tensor<2x4x6xbf16> loc("y")
// CHECK-NEXT: %12 = "tpu.Cast"(%11) {{.*}} -> tensor<2x4x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %12 : tensor<2x4x6xf32>
